"""Other systems' formats: each is read into submissions, and written from them, by a module of its own."""

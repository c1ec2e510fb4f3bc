"""The tests, as a package: else one that somebody installs under this name would come first."""

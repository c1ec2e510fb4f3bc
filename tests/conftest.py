def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden files anew")

def brew(tea):
    """Brew tea."""
    return tea

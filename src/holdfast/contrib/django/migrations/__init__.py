"""Django migrations of Holdfast's tables."""

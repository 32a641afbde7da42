"""`holdfast logs`: show what ranks have written."""

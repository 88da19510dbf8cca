"""A finished OUT in the forms that training tools read; one file per form."""

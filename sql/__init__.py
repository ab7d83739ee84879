"""SQL as package data: migrations, views, named queries and the steps of the rooms."""

"""Query databases of users, to plan and check chunks of their tables. This package never writes to them."""

"""Commands that load, plan and check the chunks of a data set."""

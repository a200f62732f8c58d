# What a reader of rows of many lengths has: the script.
cp "$REPOSITORY/examples/variable_lengths.py" .

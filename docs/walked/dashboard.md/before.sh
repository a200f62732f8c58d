# A training step, as a reader has one.
cp "$REPOSITORY/docs/walked/commands.md/train.py" .

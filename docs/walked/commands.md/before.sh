# What a reader of the list of commands has: three runs, a text, points of runs, the examples, and a repository of git.
git init --quiet --initial-branch main && git add train.py
git -c user.name="A Reader" -c user.email=reader@example.org commit --quiet --message "A step"
cp -r "$REPOSITORY/examples" .
python -m pydoc builtins > input.txt
assay train demo training.steps=12 --name first
assay train demo training.steps=12 training.learning_rate=2e-3 --name second
assay train demo training.steps=12 training.schedule=constant "training.keep_steps=[8]" --name trunk
assay runs export runs.tar.gz first
python - > POINTS.csv <<'POINTS'
print("parameters,tokens,loss")
for size in (1e6, 2e6, 4e6, 8e6):
    for ratio in (5, 10, 20, 40, 80):
        print(f"{size:g},{ratio * size:g},{1.7 + 400 / size**0.34 + 410 / (ratio * size)**0.28:.5f}")
POINTS

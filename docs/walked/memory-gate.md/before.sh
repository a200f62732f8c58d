# What a reader of this page has: a repository.
git init --quiet --initial-branch main
git config user.name "A Reader"
git config user.email reader@example.org

"""What no accident may spoil: runs are killed and files damaged, at moments and places that are drawn."""

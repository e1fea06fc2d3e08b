"""The published datasets: birds on scenes, faces, pairs of sentences; and where to get them."""

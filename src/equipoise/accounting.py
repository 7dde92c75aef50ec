"""What differentially private training has spent: epsilon over all rounds, with the assumptions it rests on."""

"""What a recorded run tells in hindsight: luck, budgets, the smallest change that keeps a token."""

"""Lottery tickets: rewound and pruned again, round by round."""

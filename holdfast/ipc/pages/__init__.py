"""Parts of a member's progress page that say something seldom: where the training ends, and slow steps."""

"""What the faces have in common: the threads and the gate, questions with their bounds, answers, and problems."""

"""What the user set: the environment, the rules folder and what models can hold, as typed values parsed once."""

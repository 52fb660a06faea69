"""How far one way of running a model is from another: exact distances on texts that ship, beside what it saves."""

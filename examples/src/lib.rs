//! Programs a user would copy.

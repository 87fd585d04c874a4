//! Typed ractor actors, the ports between them, and the fusion window.

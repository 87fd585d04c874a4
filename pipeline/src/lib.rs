//! The binary: configuration, plan, running graph, HTTP and WebSocket.

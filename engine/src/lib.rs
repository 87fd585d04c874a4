//! Who computes, when: scheduler, lanes, batching, language backends.

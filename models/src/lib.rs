//! What a model is: catalogue, weights, pre- and post-processing.

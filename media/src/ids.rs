//! Names of streams and stages. Cheap to clone, compared by value.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $ty:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $ty(Arc<str>);

        impl $ty {
            /// The name as written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $ty {
            fn from(name: &str) -> Self {
                $ty(Arc::from(name))
            }
        }

        impl From<String> for $ty {
            fn from(name: String) -> Self {
                $ty(Arc::from(name))
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// One source being processed.
    StreamId
);
name!(
    /// A node of the graph.
    StageId
);

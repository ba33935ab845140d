//! L4: what the logs of a container say, together. `load` fills an [`Index`] from index logs and a flat
//! index; `flatten` makes a flat index of it.

mod flatten;
mod load;

pub use flatten::{Flattened, flatten};
pub(crate) use flatten::{flatten_if_worth, load_if_cheap, store_flat};
pub use load::Index;

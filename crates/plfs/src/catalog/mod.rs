//! L4: what the logs of a container say, together. `index` fills an [`Index`] from index logs and a
//! flat index, `doubt` tells it what a power cut may have taken, `flatten` makes a flat index of
//! it; `totals` adds the logs up and keeps the summary; `takeover` tells whether a node may go on
//! with a log set.

mod doubt;
mod flatten;
mod index;
mod takeover;
mod totals;

pub(crate) use doubt::{Doubts, Durable};
pub use flatten::{Flattened, flatten};
pub(crate) use flatten::{flatten_if_worth, load_if_cheap, store_flat};
pub use index::{Index, Standing};
pub(crate) use index::{Nests, Purpose, read_flat};
pub use takeover::complete;
pub(crate) use totals::{Recount, lacks_logs};
pub use totals::{
    Totalizer, Totals, has_owner, is_as_summed, open_super, sync_logs, sync_names, write_summary,
};

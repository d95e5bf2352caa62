//! Requests by address: which of their entries is what.

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, MAX_ENTRIES, Status, TYPE_LID, TYPE_NAME};

/// A resolve request by address, its entries found.
pub(super) struct ByAddress<'a> {
    /// All of it.
    pub msg: &'a [u8],
    pub source: Option<Entry>,
    pub dest: Entry,
    /// The source's number among the entries; without a source, that of the first that is free.
    pub source_index: usize,
    /// The destination's.
    pub dest_index: usize,
}

impl ByAddress<'_> {
    /// Finds source and destination.
    #[inline(always)]
    pub fn parse(msg: &[u8]) -> Result<ByAddress<'_>, Status> {
        let (mut source, mut dest) = (None, None);
        let (mut source_index, mut dest_index) = (None, 0);
        let mut count = 0;
        while let Some(e) = Entry::read(msg, count) {
            let index = count;
            count += 1;
            if e.flags & EP_FLAG_SOURCE != 0 {
                if source.is_some() {
                    return Err(Status::Esrcaddr);
                }
                if !(TYPE_NAME..=TYPE_LID).contains(&e.kind) {
                    return Err(Status::Esrctype);
                }
                source = Some(e);
                source_index = Some(index);
            }
            if e.flags & EP_FLAG_DEST != 0 {
                if dest.is_some() {
                    return Err(Status::Edestaddr);
                }
                if !(TYPE_NAME..=TYPE_LID).contains(&e.kind) {
                    return Err(Status::Edesttype);
                }
                dest = Some(e);
                dest_index = index;
            }
        }
        let dest = dest.ok_or(Status::Edesttype)?;
        if source.is_none() && count >= MAX_ENTRIES {
            return Err(Status::Einval);
        }
        Ok(ByAddress { msg, source, dest, source_index: source_index.unwrap_or(count), dest_index })
    }
}

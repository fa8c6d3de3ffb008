#![allow(missing_docs)]
pub fn options() {}
pub fn store(_: ()) -> keymill::store::memory::MemoryStore {
    todo!()
}
pub fn connection() -> mysql::Conn {
    todo!()
}

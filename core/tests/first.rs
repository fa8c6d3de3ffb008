//! scratch
#[test]
fn ids_flow() {
    let mill = keymill::Mill::open("memory:").unwrap();
    let s = mill.source("segment:orders").unwrap();
    for i in 1..=100_000u64 { assert_eq!(s.next().unwrap(), i); }
    assert_eq!(s.take(5).unwrap().len(), 5);
    let t = mill.source("serial:cust_info/custid?number=000000&zone=UTC").unwrap();
    println!("{} {}", t.next_text().unwrap(), t.next_text().unwrap());
    let f = mill.source("snowflake:x?worker=5").unwrap();
    for _ in 0..5 { let id = f.next().unwrap(); println!("{id} {:?}", f.parse(id).unwrap().fields()); }
    let t0 = std::time::Instant::now();
    let mut last = 0;
    for _ in 0..20_000_000 { let n = s.next().unwrap(); assert!(n > last); last = n; }
    println!("{:?} per id", t0.elapsed() / 20_000_000);
    println!("{}", mill.metrics());
    println!("{:?}", mill.events());
    mill.close();
    println!("{:?}", s.next());
}
#[test]
fn sqlite_flow() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/k.db", dir.path().display());
    for round in 0..2u64 {
        let mill = keymill::Mill::open(&url).unwrap();
        let s = mill.source("segment:orders").unwrap();
        assert_eq!(s.take(5).unwrap(), (1 + round * 5..=5 + round * 5).collect::<Vec<_>>());
        let t = mill.source("serial:cust_info/custid?number=000000&zone=UTC").unwrap();
        println!("{}", t.next_text().unwrap());
    }
}

//! A cold source costs its store one least step, however its caller and its keeper are scheduled.

use keymill::Mill;

#[test]
fn one_cold_id_reserves_no_more_than_the_least_step() -> Result<(), keymill::Error> {
    let mill = Mill::open("memory:")?;
    for i in 0..500 {
        let source = mill.source(&format!("segment:cold{i}?min_step=10"))?;
        assert_eq!(source.next()?, 1);
        let row = source.row()?.expect("a row");
        assert_eq!(row.mark.next, 11, "{} asked for one id", source.label());
    }
    Ok(())
}

#[test]
fn a_cold_batch_reserves_what_it_asked_for_once() -> Result<(), keymill::Error> {
    let mill = Mill::open("memory:?clock=manual")?;
    for i in 0..500 {
        let source = mill.source(&format!("segment:batch{i}?step=10&buffer=1ms"))?;
        assert_eq!(source.take(10)?.len(), 10);
        let row = source.row()?.expect("a row");
        assert_eq!(row.mark.next, 11, "{} asked for ten ids", source.label());
    }
    Ok(())
}

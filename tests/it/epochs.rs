//! The store's epoch on real databases: who renews it, who finds it renewed, and what a restore does to both.

use countersign::store::meta::{ADOPTING_EPOCH, FORMER_EPOCHS, STORE_EPOCH};

use crate::world::everywhere;

#[test]
fn of_several_lanes_one_renews_and_a_forgotten_epoch_is_no_renewal() {
    everywhere(|world| async move {
        let store = &world.db.store;
        let first = store.meta(STORE_EPOCH).await.unwrap().unwrap();
        let renew = async |epoch: &str, expected: &str| {
            let mut tx = store.begin().await.unwrap();
            let answer = tx.renew_store_epoch(epoch, Some(expected)).await;
            match answer {
                Ok(epoch) => {
                    tx.commit().await.unwrap();
                    Ok(epoch)
                }
                Err(error) => {
                    tx.rollback().await;
                    Err(error.to_string())
                }
            }
        };
        assert_eq!(renew("second", &first).await.unwrap(), "second");
        assert_eq!(renew("third", &first).await.unwrap(), "second", "another lane has done so");
        // As after a restore: an epoch that was read before is not known any more.
        let error = renew("third", "of-a-lost-future").await.unwrap_err();
        assert!(error.contains("went back"), "{error}");
        assert_eq!(store.meta(STORE_EPOCH).await.unwrap().as_deref(), Some("second"));
        assert_eq!(store.meta(FORMER_EPOCHS).await.unwrap(), Some(first));
    });
}

#[test]
fn an_epoch_that_adopts_other_offsets_hands_that_on_when_a_lane_renews_it() {
    everywhere(|world| async move {
        let store = &world.db.store;
        let mut tx = store.begin().await.unwrap();
        tx.renew_store_epoch("restored", None).await.unwrap();
        tx.set_meta(ADOPTING_EPOCH, "restored").await.unwrap();
        tx.renew_store_epoch("renewed", Some("restored")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(store.meta(ADOPTING_EPOCH).await.unwrap().as_deref(), Some("renewed"));
        let mut tx = store.begin().await.unwrap();
        tx.renew_store_epoch("by-hand", None).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(store.meta(ADOPTING_EPOCH).await.unwrap().as_deref(), Some("renewed"), "by hand is anew");
    });
}

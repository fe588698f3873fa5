//! Fair shares of the daemon among users: of its processor time for queries, and of its connections.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use ttmem_core::words::Mono;

/// A user may use one in so many parts of a processor, on average.
const PARTS: u64 = 5;
/// How long a user may save up a share. One who requested nothing for so long may use all of it at once: a second.
const SAVED_NS: u64 = PARTS * Mono::SECOND;

/// Processor time that users have used.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Until when the share of each user pays for what was used.
    paid: BTreeMap<u32, Mono>,
    /// The user that the daemon runs as.
    own_uid: u32,
}

impl Shares {
    pub(crate) fn new(own_uid: u32) -> Self {
        Self { paid: BTreeMap::new(), own_uid }
    }

    /// Notes that a user used so much processor time.
    pub(crate) fn charge(&mut self, uid: u32, now: Mono, ns: u64) {
        // Root and the daemon's own user could stop it anyway, so they have all of its time.
        let parts = if uid == 0 || uid == self.own_uid { 1 } else { PARTS };
        let saved = Mono(now.0.saturating_sub(SAVED_NS));
        let paid = self.paid.entry(uid).or_insert(saved);
        *paid = Mono((*paid).max(saved).0.saturating_add(ns.saturating_mul(parts)));
    }

    /// When a user may use processor time again. The user with the earliest time comes first.
    pub(crate) fn next_turn(&self, uid: u32) -> Mono {
        self.paid.get(&uid).copied().unwrap_or(Mono(0))
    }

    /// Forgets users whose share is saved up.
    pub(crate) fn forget_idle(&mut self, now: Mono) {
        self.paid.retain(|_, paid| now.since(*paid) < SAVED_NS);
    }
}

/// Chooses the user who makes room for a new connection of `newcomer`, from the users of all connections, oldest first: the
/// one with the most; of several, `newcomer`, else the one with the oldest connection.
pub(crate) fn choose_user(users: impl Iterator<Item = u32>, newcomer: u32) -> Option<u32> {
    let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (age, uid) in users.enumerate() {
        counts.entry(uid).or_insert((0, age)).0 += 1;
    }
    let rank = |(uid, (count, first)): &(&u32, &(usize, usize))| (*count, **uid == newcomer, Reverse(*first));
    counts.iter().max_by_key(rank).map(|(&uid, _)| uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Mono::SECOND;

    #[test]
    fn user_has_a_fifth_of_a_processor() {
        let mut shares = Shares::new(7);
        let mut used = 0;
        // A request of 50 ms as often as it is allowed, for 100 s.
        for ms in 0..100_000u64 {
            let now = Mono(1000 * SECOND + ms * 1_000_000);
            if shares.next_turn(1) <= now {
                shares.charge(1, now, 50_000_000);
                used += 50;
            }
        }
        assert!((20_000..22_000).contains(&used), "{used} ms: a second saved, and a fifth of 100 s");
        let now = Mono(1100 * SECOND);
        assert!(shares.next_turn(1) > shares.next_turn(2), "others come first");
        shares.charge(7, now, SECOND);
        shares.charge(0, now, SECOND);
        assert!(shares.next_turn(7) <= now && shares.next_turn(0) <= now);
        shares.forget_idle(Mono(1200 * SECOND));
        assert!(shares.paid.is_empty());
    }

    #[test]
    fn user_with_the_most_connections_makes_room() {
        let choose = |users: &[u32], newcomer| choose_user(users.iter().copied(), newcomer);
        assert_eq!(choose(&[1, 2, 2, 2, 1], 1), Some(2));
        assert_eq!(choose(&[1, 2, 2, 2, 1], 2), Some(2));
        assert_eq!(choose(&[1, 2, 1, 2], 2), Some(2), "of equals, the newcomer");
        assert_eq!(choose(&[3, 1, 2], 4), Some(3), "else the one with the oldest");
        assert_eq!(choose(&[], 1), None);
    }
}

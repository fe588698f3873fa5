use ttmem_client::*;
fn cpu() -> f64 { let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime); t.tv_sec as f64*1e9 + t.tv_nsec as f64 }
fn main() {
    for (live, chips) in [(1000usize,1)] {
        let t = Tracker::new(&Options{folder:"/dev/shm".into(),..Options::default()});
        let c: Vec<_> = (0..chips).map(|n| t.chip(&Chip{unique_id:n as u64+1, index:n as u32, ..Chip::default()}).unwrap()).collect();
        let a = t.allocator(&c, &[Banks::new(Space::Dram, 12, 0, 1<<30)]).unwrap();
        let mut order: Vec<u64> = (0..live as u64).collect();
        let mut x = 88172645463325252u64;
        let mut rnd = || { x ^= x<<13; x ^= x>>7; x ^= x<<17; x };
        for i in (1..live).rev() { order.swap(i, (rnd() % (i as u64+1)) as usize); }
        let buf = |n: u64| Buffer{bytes_per_bank:2048, occupied:Some(2048), ..Buffer::new(a, Space::Dram, n*2048, 2048)};
        for &n in &order { t.alloc(&buf(n)).unwrap(); }
        let mut res = vec![];
        for _ in 0..31 {
            let start = cpu();
            let n = 500_000;
            let mut held = live as u64;
            let _ = &mut held;
            for i in 0..n { let k = (rnd() % live as u64) as usize; let id = order[k]; t.free(a, Space::Dram, id*2048).unwrap(); let _ = i; t.alloc(&buf(id)).unwrap(); }
            res.push((cpu()-start)/(2.0*n as f64));
        }
        res.sort_by(f64::total_cmp);
        println!("live {live} chips {chips}: {:.1} ns median ({:.1}..{:.1}) {:?}", res[15], res[0], res[30], t.status());
        t.close();
    }
}

//! What the system says: which machine this is, processor time and resident memory of this process and of its
//! children. Everything from `/proc`; what can't be read is 0 or empty, never a reason to stop.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// Where and how a figure was measured.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) command: String,
    processor: String,
    cores: usize,
    memory_mb: u64,
    /// Of the last minute when the bench began: whoever else was computing.
    load: f64,
}

impl Machine {
    pub(super) fn here() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Machine::of_command(&format!("pipeline {}", words.join(" ")))
    }

    pub(super) fn of_command(command: &str) -> Self {
        let field = |file: &str, name: &str| {
            read(file)
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let number = |text: &str| text.split_whitespace().next().and_then(|n| n.parse().ok());
        let memory_kb: u64 = number(&field("/proc/meminfo", "MemTotal")).unwrap_or_default();
        let load = read("/proc/loadavg");
        Machine {
            command: command.to_owned(),
            processor: field("/proc/cpuinfo", "model name"),
            cores: cores(),
            memory_mb: memory_kb / 1024,
            load: load.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "memory_mb": self.memory_mb,
            "load_before": self.load,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, memory_mb, load, .. } = self;
        write!(
            f,
            "{processor}, {cores} cores, {memory_mb} MB, load {load:.2} before, version {}",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Cores there are.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Linux counts processor time for user space in hundredths of a second, whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);

/// Processor time of this process so far, all threads.
pub(super) fn processor_time() -> Duration {
    TICK * ticks(&read("/proc/self/stat"))
}

/// Processor time of the whole machine so far, all that is not idle.
pub(super) fn all_processor_time() -> Duration {
    let stat = read("/proc/stat");
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u32> = fields.filter_map(|n| n.parse().ok()).collect();
    // user, nice, system; then idle, waiting; then interrupts, soft interrupts, stolen.
    let busy = ticks.iter().take(3).chain(ticks.iter().skip(5).take(2));
    TICK * busy.sum::<u32>()
}

/// User and system time of a line of `/proc/PID/stat`. The name in it may hold spaces and brackets.
fn ticks(stat: &str) -> u32 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = after_name.split_whitespace().skip(11).take(2);
    times.filter_map(|n| n.parse::<u32>().ok()).sum()
}

/// Resident memory of this process and of its children (the language engine), in MB.
pub(super) fn resident_mb() -> (f64, f64) {
    let own = resident("self");
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.map(|task| read(&task.path().join("children").to_string_lossy()));
    let children = lists
        .flat_map(|list| list.split_whitespace().map(resident).collect::<Vec<_>>())
        .sum::<f64>();
    (own, children)
}

fn resident(process: &str) -> f64 {
    resident_kb(&read(&format!("/proc/{process}/status"))) as f64 / 1024.0
}

fn resident_kb(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_brackets() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 4 0 99 1 2";
        assert_eq!(ticks(stat), 300);
        assert_eq!(ticks(""), 0);
        let before = processor_time();
        let mut sum = 0u64;
        while processor_time() < before + 2 * TICK {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[test]
    fn resident_memory_is_there_and_missing_lines_are_nothing() {
        assert_eq!(resident_kb("Name:\tx\nVmRSS:\t    2048 kB\n"), 2048);
        assert_eq!(resident_kb(""), 0);
        assert!(resident_mb().0 > 1.0);
    }
}

//! The table of sensors: file, unit and plausible range of each.

use crate::attribute::Absence;
use ttmem_core::machine::Sensors as Values;

/// A sensor.
pub(super) struct Gauge {
    pub(super) key: &'static str,
    /// Its file; one in `hwmon/` is in the device's hwmon folder.
    pub(super) file: &'static str,
    scale: f64,
    range: (f64, f64),
    pub(super) value: fn(&mut Values) -> &mut Option<f64>,
}

const CELSIUS: (f64, f64) = (-40.0, 150.0);
const WATTS: (f64, f64) = (0.0, 1000.0);
const AMPERES: (f64, f64) = (0.0, 2000.0);
const VOLTS: (f64, f64) = (0.0, 2.0);
const MEGAHERTZ: (f64, f64) = (0.0, 3000.0);

const fn gauge(
    key: &'static str,
    file: &'static str,
    scale: f64,
    range: (f64, f64),
    value: fn(&mut Values) -> &mut Option<f64>,
) -> Gauge {
    Gauge { key, file, scale, range, value }
}

/// Sensors that are read every time. Those that a table shows come first.
pub(super) const GAUGES: [Gauge; 8] = [
    gauge("asic_celsius", "hwmon/temp1_input", 1e-3, CELSIUS, |it| &mut it.asic_celsius),
    gauge("power_watts", "hwmon/power1_input", 1e-6, WATTS, |it| &mut it.power_watts),
    gauge("aiclk_mhz", "tt_aiclk", 1.0, MEGAHERTZ, |it| &mut it.aiclk_mhz),
    gauge("current_amperes", "hwmon/curr1_input", 1e-3, AMPERES, |it| &mut it.current_amperes),
    gauge("vcore_volts", "hwmon/in0_input", 1e-3, VOLTS, |it| &mut it.vcore_volts),
    gauge("axiclk_mhz", "tt_axiclk", 1.0, MEGAHERTZ, |it| &mut it.axiclk_mhz),
    gauge("arcclk_mhz", "tt_arcclk", 1.0, MEGAHERTZ, |it| &mut it.arcclk_mhz),
    gauge("fan_rpm", "hwmon/fan1_input", 1.0, (0.0, 20_000.0), |it| &mut it.fan_rpm),
];

/// How many of them a table shows.
pub(super) const IN_TABLE: usize = 3;

/// Limits, which do not change and are read until they were read once.
pub(super) const LIMITS: [Gauge; 4] = [
    gauge("limits.asic_celsius", "hwmon/temp1_max", 1e-3, CELSIUS, |it| &mut it.limits.asic_celsius),
    gauge("limits.power_watts", "hwmon/power1_max", 1e-6, WATTS, |it| &mut it.limits.power_watts),
    gauge("limits.current_amperes", "hwmon/curr1_max", 1e-3, AMPERES, |it| &mut it.limits.current_amperes),
    gauge("limits.vcore_volts", "hwmon/in0_max", 1e-3, VOLTS, |it| &mut it.limits.vcore_volts),
];

impl Gauge {
    /// Parses a value. A hung chip reads as all ones, and a missing sensor as other impossible values, which are refused.
    pub(super) fn parse(&self, text: &str) -> Result<f64, Absence> {
        let raw: i64 = text.parse().map_err(|_| Absence::Because(format!("{text:?} is no number")))?;
        // Divided by a power of ten, which is exact, rather than multiplied by its inverse, which is not.
        let value = if self.scale < 1.0 { raw as f64 / (1.0 / self.scale).round() } else { raw as f64 };
        if (self.range.0..=self.range.1).contains(&value) {
            Ok(value)
        } else {
            Err(Absence::Because(format!("{raw} is not possible")))
        }
    }
}

//! Settings under `/proc/sys/net` in the calling thread's namespace.

use std::fs;
use std::io;

/// A kernel setting (sysctl) and a value for this setting. The name of the setting is its path
/// below `/proc/sys/net`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Setting {
    pub(crate) fn new(name: String, value: &str) -> Setting {
        Setting { name, value: value.to_owned() }
    }

    pub(crate) fn set(&self) -> io::Result<()> {
        let named = |error| io::Error::other(format!("/proc/sys/net/{}: {error}", self.name));
        fs::write(file(&self.name), &self.value).map_err(named)
    }

    /// Returns the setting with its present value; `None` if this kernel does not have the
    /// setting.
    pub(crate) fn now(&self) -> Option<Setting> {
        value(&self.name).map(|value| Setting { name: self.name.clone(), value })
    }
}

/// Returns the present value of the setting `name`; `None` if it does not exist.
pub(crate) fn value(name: &str) -> Option<String> {
    fs::read_to_string(file(name)).ok().map(|text| text.trim().to_owned())
}

fn file(name: &str) -> String {
    format!("/proc/sys/net/{name}")
}

/// The packet forwarding that is on only because of this program. Other traffic must not use this
/// forwarding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddedForwarding {
    /// Added forwarding of IPv4 packets.
    pub(crate) four: ForwardingScope,
    /// Added forwarding of IPv6 packets.
    pub(crate) six: ForwardingScope,
}

/// The extent of the forwarding that this program has switched on, for one IP version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForwardingScope {
    /// No added forwarding: the machine forwards by its own settings, or not at all.
    #[default]
    Nothing,
    /// Forwarding of packets that arrive on these interfaces.
    By(Vec<String>),
    /// Forwarding of packets that arrive on any interface.
    All,
}

/// Returns whether the original value of the setting `name` is `from`. The original value is the
/// value in `noted` (recorded by other splitters that have changed the setting), or else the
/// present value.
fn has_original_value(name: &str, from: &str, noted: &[Setting]) -> bool {
    let found = noted.iter().find(|setting| setting.name == name);
    found.map_or_else(|| value(name), |setting| Some(setting.value.clone())).as_deref()
        == Some(from)
}

/// Returns the settings that switch on forwarding from the interfaces `devices`, and the
/// forwarding that results. If `with6` is true, IPv6 is included. `noted` are the original values
/// that other splitters of this program have recorded.
///
/// IPv4 forwarding is set for each interface. IPv6 forwarding is also set for each interface if
/// the kernel has `force_forwarding` (6.17). Otherwise it can only be set for all interfaces at
/// once. Interfaces that accept router advertisements must then be set to accept them in spite of
/// forwarding.
pub(crate) fn forwarding(
    devices: &[String],
    with6: bool,
    noted: &[Setting],
) -> (Vec<Setting>, AddedForwarding) {
    let (mut settings, four) = by_interface(devices, "ipv4", "forwarding", noted);
    let mut lent = AddedForwarding { four, six: ForwardingScope::Nothing };
    if with6 {
        let (more, six) = forwarding6(devices, noted);
        settings.extend(more);
        lent.six = six;
    }
    (settings, lent)
}

fn by_interface(
    devices: &[String],
    family: &str,
    what: &str,
    noted: &[Setting],
) -> (Vec<Setting>, ForwardingScope) {
    let name = |device: &String| format!("{family}/conf/{device}/{what}");
    let ours = devices.iter().filter(|device| has_original_value(&name(device), "0", noted));
    let lent: Vec<String> = ours.cloned().collect();
    let settings = lent.iter().map(|device| Setting::new(name(device), "1")).collect();
    (settings, if lent.is_empty() { ForwardingScope::Nothing } else { ForwardingScope::By(lent) })
}

fn forwarding6(devices: &[String], noted: &[Setting]) -> (Vec<Setting>, ForwardingScope) {
    const ALL: &str = "ipv6/conf/all/forwarding";
    if !has_original_value(ALL, "0", noted) {
        return (Vec::new(), ForwardingScope::Nothing);
    }
    let forced = |device: &String| value(&format!("ipv6/conf/{device}/force_forwarding"));
    if devices.first().is_some_and(|device| forced(device).is_some()) {
        return by_interface(devices, "ipv6", "force_forwarding", noted);
    }
    let mut settings = learners(noted);
    settings.push(Setting::new(ALL.into(), "1"));
    (settings, ForwardingScope::All)
}

/// Returns the settings for interfaces that would otherwise ignore router advertisements once
/// forwarding is on (`accept_ra` 2).
fn learners(noted: &[Setting]) -> Vec<Setting> {
    let Ok(folders) = fs::read_dir(file("ipv6/conf")) else { return Vec::new() };
    let devices = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok());
    let names = devices.map(|device| format!("ipv6/conf/{device}/accept_ra"));
    names
        .filter(|name| has_original_value(name, "1", noted))
        .map(|name| Setting::new(name, "2"))
        .collect()
}

/// Returns the setting `src_valid_mark` if one of `devices` checks source addresses strictly
/// (`rp_filter` 1); otherwise an empty list. The kernel's check then considers the marks of
/// answers, and accepts the answers.
pub(crate) fn answers(devices: &[String], noted: &[Setting]) -> Vec<Setting> {
    let strict = |device: &str| {
        let of = |device| value(&format!("ipv4/conf/{device}/rp_filter"));
        let level = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0u8);
        level(of("all")).max(level(of(device))) == 1
    };
    let name = "ipv4/conf/all/src_valid_mark";
    let needed =
        devices.iter().any(|device| strict(device)) && has_original_value(name, "0", noted);
    needed.then(|| Setting::new(name.into(), "1")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_run_has_changed_is_ours_to_change_too() {
        let noted = |value| vec![Setting::new("ipv4/conf/nosuch/forwarding".into(), value)];
        let devices = ["nosuch".to_owned()];
        let by = |noted: &[Setting]| by_interface(&devices, "ipv4", "forwarding", noted);
        let (settings, lent) = by(&noted("0"));
        assert_eq!(settings, [Setting::new("ipv4/conf/nosuch/forwarding".into(), "1")]);
        assert_eq!(lent, ForwardingScope::By(devices.to_vec()));
        assert_eq!(
            by(&noted("1")),
            (Vec::new(), ForwardingScope::Nothing),
            "it forwarded before us all"
        );
        assert_eq!(by(&[]), (Vec::new(), ForwardingScope::Nothing), "there is no such interface");
    }
}

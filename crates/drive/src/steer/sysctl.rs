//! Settings under `/proc/sys/net`, of the calling thread's namespace.

use std::fs;
use std::io;

/// A setting and a value for it; the name is the path below `/proc/sys/net`.
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

    /// The same setting with the value that it has now; `None` if there is no such setting here.
    pub(crate) fn now(&self) -> Option<Setting> {
        value(&self.name).map(|value| Setting { name: self.name.clone(), value })
    }
}

/// What a setting says, if there is one.
pub(crate) fn value(name: &str) -> Option<String> {
    fs::read_to_string(file(name)).ok().map(|text| text.trim().to_owned())
}

fn file(name: &str) -> String {
    format!("/proc/sys/net/{name}")
}

/// What forwarding for the interfaces `devices` takes, and which of them did not forward before.
///
/// IPv4 forwards by interface. IPv6 does so too where the kernel has `force_forwarding` (6.17); else only all
/// interfaces at once can, and those that learn their routes from routers must be told to go on learning first.
pub(crate) fn forwarding(devices: &[String], with6: bool) -> (Vec<Setting>, Vec<String>) {
    let (mut settings, mut lent) = (Vec::new(), Vec::new());
    for device in devices {
        let name = format!("ipv4/conf/{device}/forwarding");
        if value(&name).as_deref() == Some("0") {
            settings.push(Setting::new(name, "1"));
            lent.push(device.clone());
        }
    }
    if with6 {
        settings.extend(forwarding6(devices));
    }
    (settings, lent)
}

fn forwarding6(devices: &[String]) -> Vec<Setting> {
    if value("ipv6/conf/all/forwarding").as_deref() != Some("0") {
        return Vec::new();
    }
    let forced = |device: &String| format!("ipv6/conf/{device}/force_forwarding");
    if devices.first().is_some_and(|device| value(&forced(device)).is_some()) {
        return devices.iter().map(|device| Setting::new(forced(device), "1")).collect();
    }
    let mut settings = learners();
    settings.push(Setting::new("ipv6/conf/all/forwarding".into(), "1"));
    settings
}

/// Interfaces that would cease to listen to routers once forwarding is on.
fn learners() -> Vec<Setting> {
    let Ok(folders) = fs::read_dir(file("ipv6/conf")) else { return Vec::new() };
    let devices = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok());
    let names = devices.map(|device| format!("ipv6/conf/{device}/accept_ra"));
    names
        .filter(|name| value(name).as_deref() == Some("1"))
        .map(|name| Setting::new(name, "2"))
        .collect()
}

/// What lets answers in where packets are checked for the way that they came by (strict `rp_filter`): the check is to
/// look at their mark.
pub(crate) fn answers(devices: &[String]) -> Vec<Setting> {
    let strict = |device: &str| {
        let of = |device| value(&format!("ipv4/conf/{device}/rp_filter"));
        let level = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0u8);
        level(of("all")).max(level(of(device))) == 1
    };
    let name = "ipv4/conf/all/src_valid_mark";
    let needed = devices.iter().any(|device| strict(device)) && value(name).as_deref() == Some("0");
    needed.then(|| Setting::new(name.into(), "1")).into_iter().collect()
}

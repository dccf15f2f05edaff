//! Reads the samples of a metrics page in the
//! [Prometheus text format](https://prometheus.io/docs/instrumenting/exposition_formats/).

pub struct MetricsPage {
    /// Name with labels, and value.
    samples: Vec<(String, f64)>,
}

impl MetricsPage {
    pub fn parse(page: &str) -> MetricsPage {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        MetricsPage { samples: lines.filter_map(sample).collect() }
    }

    /// Sums all samples of a metric.
    pub fn sum(&self, name: &str) -> f64 {
        self.by_label(name).iter().map(|(_, value)| value).sum()
    }

    /// Returns the samples of a metric by the value of its first label, largest first. The label of
    /// a metric without labels is empty.
    pub fn by_label(&self, name: &str) -> Vec<(&str, f64)> {
        let mut found: Vec<(&str, f64)> = self
            .samples
            .iter()
            .filter(|(sample, _)| is_sample_of(sample, name))
            .map(|(sample, value)| (sample.split('"').nth(1).unwrap_or_default(), *value))
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        found
    }

    /// Mean of a histogram in milliseconds; 0 without samples.
    pub fn mean_ms(&self, histogram: &str) -> f64 {
        let sum = self.sum(&format!("{histogram}_sum"));
        let count = self.sum(&format!("{histogram}_count"));
        if count > 0.0 { sum / count * 1e3 } else { 0.0 }
    }
}

fn sample(line: &str) -> Option<(String, f64)> {
    let (name, value) = line.rsplit_once(' ')?;
    Some((name.to_owned(), value.parse().ok()?))
}

fn is_sample_of(sample: &str, metric: &str) -> bool {
    sample.strip_prefix(metric).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_from_the_page() {
        let page = "# HELP a_total x\na_total{outcome=\"kept\"} 3\n\
            a_total{outcome=\"dropped\"} 4\na_total_more 9\nb_count 2\n";
        let metrics = MetricsPage::parse(page);
        assert_eq!(metrics.by_label("a_total"), [("dropped", 4.0), ("kept", 3.0)]);
        let sums = ["a_total", "b_count", "c"].map(|name| metrics.sum(name));
        assert_eq!(sums, [7.0, 2.0, 0.0]);
    }
}

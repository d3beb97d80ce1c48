#!/usr/bin/env python3
"""The dashboard and the alerts ask Prometheus in PromQL that it understands, for metrics and labels that the planner has.

Usage: monitoring_test.py SOURCE_DIR
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print('monitoring: SKIPPED: PyYAML is not here (Debian: python3-yaml)')
    sys.exit(77)
if shutil.which('promtool') is None:
    print('monitoring: SKIPPED: promtool is not here (Debian: prometheus)')
    sys.exit(77)

SOURCE = pathlib.Path(sys.argv.pop(1))
MONITORING = SOURCE / 'deploy/monitoring'
SERIES_LABELS = {'job', 'instance'}  # Prometheus' own.
WORDS = {'and', 'or', 'unless', 'on', 'ignoring', 'by', 'without', 'bool', 'offset', 'group_left', 'group_right', 'inf', 'nan'}


def read_metrics():
    """Series to labels, a histogram as its three series."""
    series = {}
    for number, line in enumerate((MONITORING / 'metrics.txt').read_text().splitlines(), start=1):
        if line.startswith('#') or not line:
            continue
        name, kind, labels, help_text = line.split(' ', 3)
        where = f'metrics.txt:{number}: '
        assert re.fullmatch(r'(moeplan|process)_[a-z_]+', name), where + f'found name {name}'
        assert kind in ('counter', 'gauge', 'histogram'), where + f'found type {kind}, expected counter, gauge or histogram'
        assert (kind == 'counter') == name.endswith('_total'), where + f'{name}: counters, and they alone, end in _total'
        assert help_text.endswith('.'), where + 'expected a sentence'
        assert name not in series and name + '_sum' not in series, where + f'{name} stands here twice'
        own = SERIES_LABELS | (set() if labels == '-' else set(labels.split(',')))
        if kind == 'histogram':
            series |= {name + '_bucket': own | {'le'}, name + '_sum': own, name + '_count': own}
        else:
            series[name] = own
    return series


def alert_rules():
    groups = yaml.safe_load((MONITORING / 'alerts.yml').read_text())['groups']
    return [rule for group in groups for rule in group['rules']]


def dashboard():
    return json.loads((MONITORING / 'dashboard.json').read_text())


def dashboard_targets():
    return [(panel, target) for panel in dashboard()['panels'] for target in panel.get('targets', [])]


def as_prometheus_sees(expr):
    """What Grafana puts in for its variables."""
    expr = expr.replace('$__rate_interval', '1m').replace('$instance', '.*')
    assert '$' not in expr, f'a variable that the dashboard does not have: {expr}'
    return expr


def expressions():
    """(where, PromQL) of all panels and alerts."""
    for panel, target in dashboard_targets():
        yield f'panel "{panel["title"]}"', as_prometheus_sees(target['expr'])
    for rule in alert_rules():
        yield f'alert {rule["alert"]}', rule['expr']


def metrics_of(expr):
    """Names of series in `expr`: what is neither a function, a word of the language, a label nor a string."""
    expr = re.sub(r'"[^"]*"|\[[^]]*\]|\{[^}]*\}', ' ', re.sub(r'(\w+)\{', r' \1 {', expr))
    expr = re.sub(r'\b(by|without|on|ignoring|group_left|group_right) *\([^)]*\)', ' ', expr)
    names = re.findall(r'\b([a-zA-Z_:][\w:]*)\b(?! *\()', expr)
    return {name for name in names if name not in WORDS and not re.fullmatch(r'\d+\w', name)}


def selected_labels(expr):
    """(series, label) of every matcher."""
    for name, matchers in re.findall(r'(\w+)\{([^}]*)\}', expr):
        for label in re.findall(r'(\w+) *(?:=~|!~|!=|=)', re.sub(r'"[^"]*"', '""', matchers)):
            yield name, label


def grouped_labels(expr):
    for labels in re.findall(r'\b(?:by|without|on|ignoring) *\(([^)]*)\)', expr):
        yield from re.findall(r'\w+', labels)


def promtool(*arguments):
    done = subprocess.run(['promtool', *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class MonitoringTest(unittest.TestCase):
    maxDiff = None

    def assert_accepted(self, *arguments):
        code, output = promtool(*arguments)
        self.assertEqual(code, 0, f'promtool {" ".join(map(str, arguments))}: {output}')

    def test_prometheus_accepts_the_alerts_and_the_example_of_a_configuration(self):
        self.assert_accepted('check', 'rules', MONITORING / 'alerts.yml')
        self.assert_accepted('check', 'config', MONITORING / 'prometheus.yml')

    def test_alerts_are_raised_when_they_should_and_only_then(self):
        self.assert_accepted('test', 'rules', SOURCE / 'tests/deploy/alerts.test.yml')

    def test_every_alert_is_played_both_ways(self):
        played = {}
        for history in yaml.safe_load((SOURCE / 'tests/deploy/alerts.test.yml').read_text())['tests']:
            for check in history['alert_rule_test']:
                played.setdefault(check['alertname'], set()).add(bool(check['exp_alerts']))
        self.assertEqual(played, {rule['alert']: {False, True} for rule in alert_rules()})

    def test_every_expression_of_the_dashboard_is_promql(self):
        rules = [{'record': f'panel:{number}', 'expr': as_prometheus_sees(target['expr'])}
                 for number, (_, target) in enumerate(dashboard_targets())]
        self.assertGreater(len(rules), 20)
        with tempfile.NamedTemporaryFile('w', suffix='.yml') as file:
            json.dump({'groups': [{'name': 'dashboard', 'rules': rules}]}, file)
            file.flush()
            self.assert_accepted('check', 'rules', file.name)

    def test_metrics_and_labels_are_those_of_the_planner(self):
        series = read_metrics()
        for where, expr in expressions():
            with self.subTest(where):
                used = metrics_of(expr)
                self.assertTrue(used, f'no metric found in {expr}')
                self.assertLessEqual(used, series.keys(), expr)
                for name, label in selected_labels(expr):
                    self.assertIn(label, series[name], expr)
                self.assertLessEqual(set(grouped_labels(expr)), set.union(*(series[name] for name in used)), expr)

    def test_the_dashboard_shows_every_metric(self):
        shown = set.union(*(metrics_of(as_prometheus_sees(target['expr'])) for _, target in dashboard_targets()))
        stems = {re.sub(r'_(bucket|sum|count)$', '', name) for name in shown}
        self.assertEqual({name for name in read_metrics() if re.sub(r'_(bucket|sum|count)$', '', name) not in stems}, set())

    def test_legends_name_labels_that_their_series_have(self):
        series = read_metrics()
        for panel, target in dashboard_targets():
            expr = as_prometheus_sees(target['expr'])
            kept = set.union(*(series[name] for name in metrics_of(expr)))
            for label in re.findall(r'\{\{(\w+)\}\}', target['legendFormat']):
                with self.subTest(panel=panel['title'], label=label):
                    self.assertIn(label, kept)
                    if re.match(r'(sum|max|count)\b', expr):
                        self.assertIn(label, set(grouped_labels(expr)))

    def test_panels_are_whole_and_do_not_overlap(self):
        panels = dashboard()['panels']
        self.assertEqual(len({panel['id'] for panel in panels}), len(panels))
        taken = {}
        for panel in panels:
            box = panel['gridPos']
            for cell in ((x, y) for x in range(box['x'], box['x'] + box['w']) for y in range(box['y'], box['y'] + box['h'])):
                self.assertNotIn(cell, taken, f'"{panel["title"]}" lies on "{taken.get(cell)}"')
                self.assertLess(cell[0], 24, f'"{panel["title"]}" leaves the page')
                taken[cell] = panel['title']
            if panel['type'] != 'row':
                self.assertTrue(panel['description'] and panel['fieldConfig']['defaults']['unit'] and panel['targets'], panel['title'])
                self.assertTrue(all(target['datasource']['uid'] == '${datasource}' for target in panel['targets']), panel['title'])

    def test_every_alert_has_a_severity_and_a_page_that_says_what_to_do(self):
        headings = set()
        for page in (SOURCE / 'docs').glob('operations*.md'):
            headings |= {line.lstrip('# ').strip() for line in page.read_text().splitlines() if line.startswith('#')}
        for rule in alert_rules():
            with self.subTest(rule['alert']):
                self.assertIn(rule['labels']['severity'], ('critical', 'warning'))
                self.assertEqual(rule['annotations']['runbook'], 'docs/operations.md#' + rule['alert'].lower())
                self.assertIn(rule['alert'], headings, 'expected a heading in docs/operations.md')


if __name__ == '__main__':
    unittest.main()

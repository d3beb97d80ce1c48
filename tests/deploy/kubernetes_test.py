#!/usr/bin/env python3
"""What `kubectl kustomize` makes of deploy/kubernetes/: whole objects whose names, labels, ports, volumes and versions agree.

Usage: kubernetes_test.py SOURCE_DIR VERSION
"""
import functools
import os
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
    print('kubernetes: SKIPPED: PyYAML is not here (Debian: python3-yaml)')
    sys.exit(77)
KUSTOMIZE = ['kubectl', 'kustomize'] if shutil.which('kubectl') else ['kustomize', 'build']
if shutil.which(KUSTOMIZE[0]) is None:
    print('kubernetes: SKIPPED: neither kubectl nor kustomize is here')
    sys.exit(77)

SOURCE, VERSION = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
KUBERNETES = SOURCE / 'deploy/kubernetes'
VARIANTS = ('base', 'overlays/production')

# The fields that these manifests may have, as the API has them: a misspelled one would be dropped or refused by a cluster. A set:
# values of any kind; a dictionary: fields within; a list of one: each item so; ANY: not looked into.
ANY = object()
METADATA = {'name': ANY, 'namespace': ANY, 'labels': ANY}
PROBE = {'grpc': {'port': ANY, 'service': ANY}, 'httpGet': {'path': ANY, 'port': ANY, 'scheme': ANY}, 'tcpSocket': {'port': ANY},
         'periodSeconds': ANY,
         'timeoutSeconds': ANY, 'failureThreshold': ANY}
RESOURCES = {'requests': {'cpu': ANY, 'memory': ANY, 'storage': ANY}, 'limits': {'memory': ANY}}
CONTAINER = {
    'name': ANY, 'image': ANY, 'imagePullPolicy': ANY, 'command': ANY, 'args': ANY,
    'ports': [{'name': ANY, 'containerPort': ANY}],
    'env': [{'name': ANY, 'value': ANY, 'valueFrom': {'fieldRef': {'fieldPath': ANY, 'apiVersion': ANY}}}],
    'startupProbe': PROBE, 'readinessProbe': PROBE, 'livenessProbe': PROBE, 'resources': RESOURCES,
    'securityContext': {'allowPrivilegeEscalation': ANY, 'readOnlyRootFilesystem': ANY, 'capabilities': {'drop': ANY}},
    'volumeMounts': [{'name': ANY, 'mountPath': ANY, 'readOnly': ANY}]}
POD = {
    'serviceAccountName': ANY, 'automountServiceAccountToken': ANY, 'enableServiceLinks': ANY, 'terminationGracePeriodSeconds': ANY,
    'hostNetwork': ANY, 'dnsPolicy': ANY, 'runtimeClassName': ANY, 'nodeSelector': ANY,
    'tolerations': [{'key': ANY, 'operator': ANY, 'effect': ANY}],
    'securityContext': {'runAsNonRoot': ANY, 'runAsUser': ANY, 'runAsGroup': ANY, 'fsGroup': ANY, 'fsGroupChangePolicy': ANY,
                        'seccompProfile': {'type': ANY}},
    'containers': [CONTAINER],
    'volumes': [{'name': ANY, 'emptyDir': {'medium': ANY, 'sizeLimit': ANY}, 'configMap': {'name': ANY},
                 'secret': {'secretName': ANY, 'defaultMode': ANY}}]}
TEMPLATE = {'metadata': METADATA, 'spec': POD}
SELECTOR = {'matchLabels': ANY}
PEER = {'namespaceSelector': SELECTOR, 'podSelector': SELECTOR, 'ipBlock': {'cidr': ANY, 'except': ANY}}
FIELDS = {
    ('v1', 'Namespace'): {},
    ('v1', 'ServiceAccount'): {'automountServiceAccountToken': ANY},
    ('v1', 'ConfigMap'): {'data': ANY},
    ('v1', 'Service'): {'spec': {'selector': ANY, 'ports': [{'name': ANY, 'port': ANY, 'targetPort': ANY, 'appProtocol': ANY}]}},
    ('apps/v1', 'StatefulSet'): {'spec': {
        'replicas': ANY, 'serviceName': ANY, 'selector': SELECTOR, 'template': TEMPLATE,
        'volumeClaimTemplates': [{'metadata': METADATA, 'spec': {'accessModes': ANY, 'resources': RESOURCES}}]}},
    ('apps/v1', 'DaemonSet'): {'spec': {
        'selector': SELECTOR, 'template': TEMPLATE, 'updateStrategy': {'type': ANY, 'rollingUpdate': {'maxUnavailable': ANY}}}},
    ('networking.k8s.io/v1', 'NetworkPolicy'): {'spec': {
        'podSelector': SELECTOR, 'policyTypes': ANY, 'ingress': [{'from': [PEER], 'ports': [{'port': ANY}]}], 'egress': ANY}},
    ('monitoring.coreos.com/v1', 'ServiceMonitor'): {'spec': {
        'selector': SELECTOR, 'endpoints': [{
            'port': ANY, 'path': ANY, 'interval': ANY, 'scheme': ANY,
            'authorization': {'credentials': {'name': ANY, 'key': ANY}},
            'tlsConfig': {'serverName': ANY, 'ca': {'secret': {'name': ANY, 'key': ANY}}}}]}},
}


def unknown_fields(value, fields, path=''):
    if fields is ANY:
        return []
    if isinstance(fields, list):
        return [found for i, item in enumerate(value) for found in unknown_fields(item, fields[0], f'{path}[{i}]')]
    return [found for key, item in value.items()
            for found in ([f'{path}.{key}'] if key not in fields else unknown_fields(item, fields[key], f'{path}.{key}'))]


@functools.cache
def objects(variant):
    done = subprocess.run([*KUSTOMIZE, str(KUBERNETES / variant)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f'{" ".join(KUSTOMIZE)} {variant}: {done.stderr}'
    assert not done.stderr, f'{" ".join(KUSTOMIZE)} {variant}: {done.stderr}'
    return list(yaml.safe_load_all(done.stdout))


def of_kind(variant, *kinds):
    return [item for item in objects(variant) if item['kind'] in kinds]


def workloads(variant):
    return of_kind(variant, 'StatefulSet', 'DaemonSet')


def containers_of(workload):
    return workload['spec']['template']['spec']['containers']


def container(variant, workload, name):
    pod = next(item for item in workloads(variant) if item['metadata']['name'] == workload)
    return next(item for item in containers_of(pod) if item['name'] == name)


def planner(variant):
    return container(variant, 'moeplan-planner', 'planner')


def front(variant):
    return container(variant, 'moeplan-planner', 'front')


def agent(variant):
    return container(variant, 'moeplan-agent', 'agent')


def environment_of(item):
    return {variable['name']: variable.get('value') for variable in item.get('env', [])}


def options_of_planner(variant):
    return dict((arg + '=').split('=')[:2] for arg in planner(variant)['args'])


def ports_of(container):
    return {port['name']: port['containerPort'] for port in container.get('ports', [])}


class KubernetesTest(unittest.TestCase):
    def in_each_variant(self, check):
        for variant in VARIANTS:
            with self.subTest(variant):
                check(variant)

    def test_objects_have_the_fields_of_their_kinds_alone(self):
        def check(variant):
            for item in objects(variant):
                fields = FIELDS[item['apiVersion'], item['kind']] | {'apiVersion': ANY, 'kind': ANY, 'metadata': METADATA}
                self.assertEqual(unknown_fields(item, fields, item['kind']), [])
                if item['kind'] != 'Namespace':
                    self.assertIn(item['metadata']['namespace'], [space['metadata']['name'] for space in of_kind(variant, 'Namespace')])
            names = [(item['kind'], item['metadata'].get('namespace'), item['metadata']['name']) for item in objects(variant)]
            self.assertEqual(len(set(names)), len(names))
        self.in_each_variant(check)

    def test_selectors_choose_the_pods_they_mean(self):
        def check(variant):
            labels = {(item['metadata']['namespace'], item['metadata']['name']): item['spec']['template']['metadata']['labels']
                      for item in workloads(variant)}
            for item in workloads(variant):
                selected = item['spec']['selector']['matchLabels']
                self.assertEqual([key for key, own in labels.items() if selected.items() <= own.items()],
                                 [(item['metadata']['namespace'], item['metadata']['name'])])
            for item in of_kind(variant, 'Service', 'NetworkPolicy'):
                selector = item['spec'].get('selector') or item['spec']['podSelector']['matchLabels']
                self.assertLessEqual(selector.items(), labels['moeplan', 'moeplan-planner'].items())
            [service] = of_kind(variant, 'Service')
            for item in of_kind(variant, 'ServiceMonitor'):
                self.assertLessEqual(item['spec']['selector']['matchLabels'].items(), service['metadata']['labels'].items())
        self.in_each_variant(check)

    def test_ports_agree_from_the_option_to_the_probe(self):
        def check(variant):
            # The pod is reached through its front alone, and the front reaches the planner where it listens.
            ports = ports_of(front(variant))
            self.assertEqual(ports_of(planner(variant)), {})
            options, passed_on = options_of_planner(variant), environment_of(front(variant))
            for name, port in ports.items():
                self.assertEqual(passed_on['MOEPLAN_FRONT_' + name.upper()], f'0.0.0.0:{port}')
                self.assertEqual(passed_on['MOEPLAN_' + name.upper()], options['--' + name])
                self.assertRegex(options['--' + name], r'^127\.0\.0\.1:\d+$')
                self.assertNotIn(int(options['--' + name].split(':')[1]), ports.values())
            # And it is configured by nothing else than the configuration reads.
            configuration = (SOURCE / 'deploy/front/haproxy.cfg').read_text()
            for name in passed_on:
                self.assertIn(name, configuration)
            [service] = of_kind(variant, 'Service')
            self.assertEqual({port['name']: port['port'] for port in service['spec']['ports']}, ports)
            self.assertTrue(all(port['targetPort'] == port['name'] for port in service['spec']['ports']))
            [policy] = of_kind(variant, 'NetworkPolicy')
            self.assertEqual({port['port'] for rule in policy['spec']['ingress'] for port in rule['ports']}, set(ports))
            for item in of_kind(variant, 'ServiceMonitor'):
                self.assertTrue(all(endpoint['port'] in ports for endpoint in item['spec']['endpoints']))
            self.assertEqual(environment_of(agent(variant))['PLANNER'], f'moeplan-planner.moeplan.svc.cluster.local:{ports["grpc"]}')
            for probe in ('startupProbe', 'readinessProbe', 'livenessProbe'):
                asked = planner(variant)[probe]
                self.assertIn((asked.get('grpc') or asked['httpGet'])['port'], ports.values())
            self.assertIn(front(variant)['livenessProbe']['tcpSocket']['port'], ports)
        self.in_each_variant(check)

    def test_the_base_is_probed_by_grpc_and_production_speaks_tls(self):
        for probe in ('startupProbe', 'readinessProbe', 'livenessProbe'):
            self.assertEqual(planner('base')[probe]['grpc'], {'port': 7070})
            self.assertNotIn('httpGet', planner('base')[probe])
            self.assertEqual(planner('overlays/production')[probe]['httpGet'], {'path': '/healthz', 'port': 7080, 'scheme': 'HTTPS'})
            self.assertNotIn('grpc', planner('overlays/production')[probe])
        # Behind the front nothing has to be allowed.
        for variant in VARIANTS:
            self.assertEqual({'--insecure', '--exposed-http2'} & options_of_planner(variant).keys(), set())
        self.assertNotIn('MOEPLAN_FRONT_CERTIFICATE', environment_of(front('base')))
        mounts = {mount['mountPath']: mount['name'] for mount in front('overlays/production')['volumeMounts']}
        folder, name = environment_of(front('overlays/production'))['MOEPLAN_FRONT_CERTIFICATE'].rsplit('/', 1)
        self.assertEqual((mounts[folder], name), ('tls', 'tls.crt'))
        [monitor] = of_kind('overlays/production', 'ServiceMonitor')
        self.assertEqual({endpoint['scheme'] for endpoint in monitor['spec']['endpoints']}, {'https'})

    def test_images_carry_the_version_of_this_tree(self):
        def check(variant):
            self.assertEqual(planner(variant)['image'], f'moeplan:{VERSION}')
            self.assertEqual(front(variant)['image'], f'moeplan-front:{VERSION}')
            self.assertEqual(agent(variant)['image'], f'moeplan-cuda:{VERSION}')
        self.in_each_variant(check)
        dockerfile = (SOURCE / 'deploy/Dockerfile').read_text()
        self.assertEqual(set(re.findall(r'-t moeplan[a-z-]*:(\S+)', dockerfile)), {VERSION})
        for base in re.findall(r'^ARG (?:DEBIAN|CUDA)=(.*)$', dockerfile, re.MULTILINE):
            self.assertRegex(base, r'^[a-z/]+:\d+\.\d+(\.\d+)?-[a-z0-9.-]+$')

    def test_the_dockerfile_builds_from_stages_that_it_has(self):
        dockerfile = (SOURCE / 'deploy/Dockerfile').read_text()
        arguments = dict(re.findall(r'^ARG (\w+)=(.*)$', dockerfile, re.MULTILINE))
        stages = set()
        for source, name in re.findall(r'^FROM (\S+) AS (\S+)$', dockerfile, re.MULTILINE):
            source = re.sub(r'\$\{(\w+)\}', lambda match: arguments[match[1]], source)
            self.assertTrue(':' in source or source in stages, source)
            stages.add(name)
        self.assertLessEqual(set(re.findall(r'(?:--|,)from=([a-z-]+)', dockerfile)), stages)
        self.assertEqual(len(re.findall('^FROM ', dockerfile, re.MULTILINE)), len(stages))
        self.assertIn('deploy/packages.sh', dockerfile)
        user = workloads('base')[0]['spec']['template']['spec']['securityContext']['runAsUser']
        self.assertEqual(re.findall(r'--uid (\d+)', dockerfile), [str(user)])
        self.assertEqual(re.findall(r'^USER (.*)$', dockerfile, re.MULTILINE)[-1], f'{user}:{user}')

    def test_pods_may_do_no_more_than_they_must(self):
        def check(variant):
            for item in workloads(variant):
                pod = item['spec']['template']['spec']
                self.assertEqual(pod['securityContext']['runAsNonRoot'], True)
                self.assertGreater(pod['securityContext']['runAsUser'], 0)
                self.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})
                self.assertEqual(pod['automountServiceAccountToken'], False)
                for one in containers_of(item):
                    self.assertEqual(one['securityContext'], {
                        'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True, 'capabilities': {'drop': ['ALL']}})
                    for limits in one['resources'].values():
                        for quantity in limits.values():
                            self.assertRegex(quantity, r'^\d+(m|Mi|Gi)?$')
                    self.assertIn('memory', one['resources']['limits'])
            statefulset = next(item for item in workloads(variant) if item['kind'] == 'StatefulSet')
            self.assertEqual(statefulset['spec']['replicas'], 1)  # SQLite.
            self.assertNotIn('hostNetwork', statefulset['spec']['template']['spec'])
        self.in_each_variant(check)

    def test_mounts_have_volumes_and_volumes_have_sources(self):
        def check(variant):
            config_maps = {(item['metadata']['namespace'], item['metadata']['name']) for item in of_kind(variant, 'ConfigMap')}
            pages = ' '.join(page.read_text() for page in (SOURCE / 'docs').glob('operations*.md'))
            for item in workloads(variant):
                volumes = {volume['name']: volume for volume in item['spec']['template']['spec']['volumes']}
                claims = {claim['metadata']['name'] for claim in item['spec'].get('volumeClaimTemplates', [])}
                mounted = {mount['name'] for one in containers_of(item) for mount in one.get('volumeMounts', [])}
                self.assertEqual(mounted, volumes.keys() | claims)
                for volume in volumes.values():
                    if 'configMap' in volume:
                        self.assertIn((item['metadata']['namespace'], volume['configMap']['name']), config_maps)
                    if 'secret' in volume:
                        self.assertIn(volume['secret']['secretName'], pages, 'expected how it is made in docs/operations.md')
            for item in of_kind(variant, 'ServiceMonitor'):
                for endpoint in item['spec']['endpoints']:
                    self.assertIn(endpoint['authorization']['credentials']['name'], pages)
            folder = options_of_planner(variant)['--db'].rsplit('/', 1)[0]
            self.assertIn({'name': 'database', 'mountPath': folder}, planner(variant)['volumeMounts'])
        self.in_each_variant(check)

    def test_no_secret_is_kept_here(self):
        for path in KUBERNETES.rglob('*.yaml'):
            for document in yaml.safe_load_all(path.read_text()):
                self.assertNotEqual(document['kind'], 'Secret', path)
            self.assertNotIn('PRIVATE KEY', path.read_text(), path)

    def run_agent(self, node):
        """The agent's script with the cluster of the ConfigMap, and a moeplan that prints what it is asked."""
        [config_map] = of_kind('base', 'ConfigMap')
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in config_map['data'].items():
                pathlib.Path(scratch, name).write_text(text)
            program = pathlib.Path(scratch, 'moeplan')
            program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            program.chmod(0o755)
            one = agent('overlays/production')
            script = one['args'][0].replace('cluster=/etc/moeplan/cluster', f'cluster={scratch}')
            environment = {variable['name']: variable.get('value', '') for variable in one['env']}
            return subprocess.run(
                [*one['command'], script], capture_output=True, text=True, check=False,
                env=environment | {'PATH': f'{scratch}:{os.environ["PATH"]}', 'NODE_NAME': node, 'NODE_ADDRESS': '10.1.2.3'})

    def test_an_agent_finds_the_rank_of_its_node(self):
        done = self.run_agent('gpu-node-1')
        self.assertEqual(done.stdout.split(), [
            'agent', '--planner', 'moeplan-planner.moeplan.svc.cluster.local:7070', '--cluster', 'default', '--nodes', '2',
            '--node-rank', '1', '--ranks', '8', '--backend', 'cuda', '--address', '10.1.2.3', '--token-file',
            '/etc/moeplan/token/token', '--tls-ca', '/etc/moeplan/ca/ca.crt'], done.stderr)

    def test_an_agent_on_a_node_that_is_not_listed_says_so(self):
        done = self.run_agent('gpu-node')
        self.assertEqual(done.returncode, 2)
        self.assertIn('found node gpu-node, expected one of the ConfigMap moeplan-cluster', done.stderr)


if __name__ == '__main__':
    unittest.main()

#!/usr/bin/env python3
"""Every option that units, manifests, the Slurm script and the operations pages pass to moeplan is one that its --help names.

Usage: flags_test.py SOURCE_DIR MOEPLAN
"""
import functools
import pathlib
import re
import subprocess
import sys

try:
    import yaml
except ImportError:
    print('flags: SKIPPED: PyYAML is not here (Debian: python3-yaml)')
    sys.exit(77)

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
DEPLOY = SOURCE / 'deploy'
COMING = ('agent', 'token')  # Commands whose absence is no mistake of what is here.


@functools.cache
def help_of(*command):
    """The help text of `moeplan COMMAND...`, empty where there is no such command."""
    done = subprocess.run([PROGRAM, *command, '--help'], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ''


@functools.cache
def exists(command):
    line = re.search(rf'^ +{command} +(.*)$', help_of(), re.MULTILINE)
    return line is not None and '(not there yet)' not in line[1]


def commands_of(words):
    """The leading words that are commands: two where the first has commands of its own."""
    if len(words) > 1 and re.search(rf'^ +{re.escape(words[1])} ', help_of(words[0]), re.MULTILINE) and 'SUBCOMMAND' in help_of(words[0]):
        return tuple(words[:2])
    return ('token', 'create') if words[:2] == ['token', 'create'] else (words[0],)


def invocations_in(text):
    """(commands, options) of every `moeplan COMMAND ... --option` in a script, unit or page, its lines joined at backslashes."""
    text = re.sub(r'\\\n *', ' ', text)
    for match in re.finditer(r'(?:^|[\s=`/("])moeplan +((?:[a-z-]+ )[^\n`|;>]*)', text):
        words = match[1].split()
        if exists(words[0]) or words[0] in COMING:
            yield commands_of(words), re.findall(r'(?<![\w-])--[a-z][a-z-]*', match[1])


def invocations_of_manifests():
    for path in sorted((DEPLOY / 'kubernetes').rglob('*.yaml')):
        for document in yaml.safe_load_all(path.read_text()):
            if not isinstance(document, dict) or document.get('kind') not in ('StatefulSet', 'DaemonSet'):
                continue
            for container in document['spec']['template']['spec']['containers']:
                args = container.get('args', [])
                if container['name'] == 'planner':
                    yield path, ('serve',), [arg.split('=')[0] for arg in args]
                for text in args:
                    for commands, options in invocations_in(text):
                        yield path, commands, options
                for variable in container.get('env', []):
                    if variable['name'] == 'CONNECT_OPTIONS':
                        yield path, ('agent',), re.findall(r'--[a-z-]+', variable['value'])


def invocations():
    """(path, commands, options) of everything here."""
    texts = [*(DEPLOY / 'systemd').glob('*.service'), *(DEPLOY / 'slurm').iterdir(), DEPLOY / 'Dockerfile',
             *(SOURCE / 'docs').glob('operations*.md')]
    for path in sorted(texts):
        for commands, options in invocations_in(path.read_text()):
            yield path, commands, options
    # What the files of /etc/default suggest.
    for name, command in (('moeplan-planner', 'serve'), ('moeplan-agent', 'agent')):
        path = DEPLOY / 'systemd' / name
        yield path, (command,), re.findall(r'(?<![\w-])--[a-z-]+', path.read_text())
    yield from invocations_of_manifests()


def main():
    found, missing = 0, []
    for path, commands, options in invocations():
        known = set(re.findall(r'--[a-z][a-z-]*', help_of(*commands))) if exists(commands[0]) else set()
        for option in dict.fromkeys(options):
            found += 1
            if option not in known:
                missing.append(f'{path.relative_to(SOURCE)}: moeplan {" ".join(commands)} {option}')
    print(f'flags: {found} uses of options, {len(missing)} of them not in --help', *missing, sep='\n  ')
    if found < 40:
        print('flags: expected at least 40 uses; the files or this test\'s reading of them have changed')
        return 1
    absent = [command for command in COMING if not exists(command)]
    if absent:
        print(f'flags: SKIPPED: not there yet: moeplan {", moeplan ".join(absent)}')
        return 77
    return 1 if missing else 0


sys.exit(main())

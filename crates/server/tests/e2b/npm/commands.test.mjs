// 31 cases: processes, their output and input, signals and time.

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { test } from 'node:test'
import { e2b, place, shared, sleep, until, untilGone } from './helper.mjs'

const { CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } = e2b

const box = await shared()

test('a command gives its output', async () => {
  const done = await box.commands.run('echo hello')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['hello\n', '', 0])
})

test('errors go their own way', async () => {
  const done = await box.commands.run('echo out; echo err >&2')
  assert.deepEqual([done.stdout, done.stderr], ['out\n', 'err\n'])
})

test('a status is an exception with everything', async () => {
  for (const status of [1, 2, 127, 255]) {
    await assert.rejects(box.commands.run(`echo before; echo why >&2; exit ${status}`), (error) => {
      assert(error instanceof CommandExitError)
      assert.deepEqual([error.exitCode, error.stdout, error.stderr], [status, 'before\n', 'why\n'])
      return true
    })
  }
})

test('a missing program is told by the shell', async () => {
  await assert.rejects(box.commands.run('surely-no-such-program'), (error) => error.exitCode === 127 && /not found/.test(error.stderr))
})

test('text comes back as it was', async () => {
  for (const text of ['ä€😀', 'a\'b"c', 'line\nline', '\t\\n', '$HOME `x`', '']) {
    assert.equal((await box.commands.run('printf %s "$TEXT"', { envs: { TEXT: text } })).stdout, text)
  }
})

test('letters cut in two are put together', async () => {
  const seen = []
  const done = await box.commands.run(String.raw`printf '\xe2\x82'; sleep 0.5; printf '\xac\n'`, { onStdout: (text) => { seen.push(text) } })
  assert.equal(done.stdout, '€\n')
  assert.equal(seen.join(''), '€\n')
})

test('bytes that are no text do not break it', async () => {
  const done = await box.commands.run(String.raw`printf 'a\xff\xfeb'`)
  assert(/^a\ufffd+b$/.test(done.stdout), JSON.stringify(done.stdout))
})

test('variables are for one command', async () => {
  assert.equal((await box.commands.run('echo $A$B', { envs: { A: '1', B: '2' } })).stdout, '12\n')
  assert.equal((await box.commands.run('echo x$A')).stdout, 'x\n')
})

test('names that are none of variables are refused', async () => {
  await assert.rejects(box.commands.run('true', { envs: { 'A=B': 'x' } }), InvalidArgumentError)
})

test('it starts at home and where it is told to', async (t) => {
  const path = await place(t, box)
  assert.equal((await box.commands.run('pwd')).stdout, '/home/user\n')
  assert.equal((await box.commands.run('pwd', { cwd: '/etc' })).stdout, '/etc\n')
  assert.equal((await box.commands.run('pwd', { cwd: path.split('/').at(-1) })).stdout, `${path}\n`)
})

test('a directory that is missing is named', async () => {
  await assert.rejects(box.commands.run('true', { cwd: '/no/such/place' }), (error) => error instanceof InvalidArgumentError && /does not exist/.test(error.message))
  await assert.rejects(box.commands.run('true', { cwd: '/etc/hostname' }), /not a directory/)
})

test('output arrives while it runs', async () => {
  const seen = []
  const handle = await box.commands.run('echo one; read line; echo two', { background: true, stdin: true, onStdout: (text) => { seen.push(text) } })
  await until(() => seen.length > 0)
  assert.deepEqual([seen, handle.exitCode], [['one\n'], undefined])
  await handle.sendStdin('go\n')
  assert.equal((await handle.wait()).stdout, 'one\ntwo\n')
  assert.deepEqual(seen, ['one\n', 'two\n'])
})

test('errors arrive by their own way while it runs', async () => {
  const seen = []
  await box.commands.run('echo a; echo b >&2; sleep 0.3; echo c >&2', {
    onStdout: (text) => { seen.push(['out', text]) },
    onStderr: (text) => { seen.push(['err', text]) },
  })
  const of = (kind) => seen.filter(([one]) => one === kind).map(([, text]) => text).join('')
  assert.deepEqual([of('out'), of('err')], ['a\n', 'b\nc\n'])
})

test('much output is whole', async () => {
  const done = await box.commands.run('seq 1 200000', { timeoutMs: 300_000 })
  assert.equal(done.stdout, Array.from({ length: 200_000 }, (_, at) => `${at + 1}\n`).join(''))
})

test('a long line is whole', async () => {
  const done = await box.commands.run("head -c 5000000 /dev/zero | tr '\\0' x", { timeoutMs: 300_000 })
  assert.equal(done.stdout.length, 5_000_000)
  assert(/^x+$/.test(done.stdout))
})

test('who is slow to listen gets all of it', async () => {
  let length = 0
  await box.commands.run('seq 1 50000', { timeoutMs: 300_000, onStdout: async (text) => { await sleep(5); length += text.length } })
  assert.equal(length, 288_894)
})

test('a background command is waited for', async () => {
  const handle = await box.commands.run('sleep 0.3; echo done', { background: true })
  assert.equal(handle.exitCode, undefined)
  assert.equal((await handle.wait()).stdout, 'done\n')
  assert.deepEqual([handle.exitCode, handle.stdout], [0, 'done\n'])
})

test('a background command that fails says so to who waits', async () => {
  const handle = await box.commands.run('echo before; exit 7', { background: true })
  await assert.rejects(handle.wait(), (error) => error instanceof CommandExitError && error.exitCode === 7 && error.stdout === 'before\n')
})

test('a background command is listed and killed', async () => {
  const handle = await box.commands.run('sleep 300', { background: true, timeoutMs: 0, cwd: '/etc', envs: { MARK: 'here' } })
  const told = (await box.commands.list()).find((process) => process.pid === handle.pid)
  assert.deepEqual([told.cmd, told.args, told.cwd, told.envs.MARK], ['/bin/bash', ['-l', '-c', 'sleep 300'], '/etc', 'here'])
  assert.equal(await handle.kill(), true)
  await assert.rejects(handle.wait(), CommandExitError)
  assert(!(await box.commands.list()).some((process) => process.pid === handle.pid))
  assert.equal(await handle.kill(), false)
})

test('what is not there is told', async () => {
  assert.equal(await box.commands.kill(999_999), false)
  await assert.rejects(box.commands.sendStdin(999_999, 'x'), NotFoundError)
  await assert.rejects(box.commands.closeStdin(999_999), NotFoundError)
  await assert.rejects(box.commands.connect(999_999), NotFoundError)
})

test('killing takes along what it started', async () => {
  const handle = await box.commands.run('sleep 4421 & echo up; sleep 4421; wait', { background: true, timeoutMs: 0 })
  await until(() => handle.stdout === 'up\n')
  await handle.kill()
  await untilGone(box, 'sleep 4421')
})

test('a signal is told as one', async () => {
  await assert.rejects(box.commands.run('kill -9 $$'), (error) => error.exitCode === -1 && /killed/.test(error.error))
  await assert.rejects(box.commands.run('kill -TERM $$'), (error) => error.exitCode === -1 && /terminated/.test(error.error))
})

test('input goes in until it is closed', async () => {
  const handle = await box.commands.run('cat', { background: true, stdin: true })
  await handle.sendStdin('one\n')
  await box.commands.sendStdin(handle.pid, 'zwei ä\n')
  await handle.sendStdin(new TextEncoder().encode('three\n'))
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout, 'one\nzwei ä\nthree\n')
})

test('a megabyte of input is whole', async () => {
  const handle = await box.commands.run('sha256sum', { background: true, stdin: true, timeoutMs: 300_000 })
  const piece = 'z'.repeat(1 << 18)
  for (let turn = 0; turn < 4; turn += 1) await handle.sendStdin(piece)
  await box.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout.slice(0, 64), createHash('sha256').update('z'.repeat(1 << 20)).digest('hex'))
})

test('without input there is none', async () => {
  assert.equal((await box.commands.run('cat; echo end')).stdout, 'end\n')
})

test('one connects to a command again', async () => {
  const handle = await box.commands.run('read line; echo "late $line"', { background: true, stdin: true })
  await handle.disconnect()
  const seen = []
  const again = await box.commands.connect(handle.pid, { onStdout: (text) => { seen.push(text) } })
  await again.sendStdin('come\n')
  assert.equal((await again.wait()).stdout, 'late come\n')
  assert.deepEqual(seen, ['late come\n'])
})

test('two listen to one command', async () => {
  const handle = await box.commands.run('read line; echo "$line"', { background: true, stdin: true })
  const other = await box.commands.connect(handle.pid)
  await handle.sendStdin('both\n')
  assert.deepEqual([(await handle.wait()).stdout, (await other.wait()).stdout], ['both\n', 'both\n'])
})

test('a time limit ends the command', async () => {
  await assert.rejects(box.commands.run('sleep 4422', { timeoutMs: 1000 }), TimeoutError)
  await untilGone(box, 'sleep 4422')
})

test('commands outlive their shell and see each other', async () => {
  await box.commands.run('nohup sleep 4423 >/dev/null 2>&1 &')
  const found = (await box.commands.run("pgrep -f '[s]leep 4423'")).stdout.trim().split('\n')
  assert.equal(found.length, 1)
  await box.commands.run(`kill ${found[0]}`)
  await untilGone(box, 'sleep 4423')
})

test('many at once', async () => {
  const done = await Promise.all(Array.from({ length: 20 }, (_, at) => box.commands.run(`sleep 0.2; echo ${at}`)))
  assert.deepEqual(done.map((one) => one.stdout), Array.from({ length: 20 }, (_, at) => `${at}\n`))
})

test('the sandbox knows that it is one, and has the project', async () => {
  assert.equal((await box.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID')).stdout, `true ${box.sandboxId}\n`)
  assert.equal((await box.commands.run('cat $FRACTAL_DIRECTORY/README')).stdout, 'a project\n')
  const made = await box.commands.run('cd $FRACTAL_DIRECTORY && echo x > made && ls -d $PWD/made', { user: 'root' })
  assert.equal(existsSync(made.stdout.trim()), false, 'what is made inside stays inside')
})

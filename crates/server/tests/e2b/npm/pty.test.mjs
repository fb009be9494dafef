// 9 cases: terminals.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, shared, until } from './helper.mjs'

const { CommandExitError, NotFoundError, TimeoutError } = e2b

const box = await shared()

/** A terminal, what it showed, and a way to type. It ends with its case. */
async function terminal(t, options = {}) {
  const shown = { text: '' }
  const decoder = new TextDecoder()
  const onData = (data) => { shown.text += decoder.decode(data, { stream: true }) }
  const handle = await box.pty.create({ cols: 100, rows: 30, timeoutMs: 600_000, onData, ...options })
  handle.wait().catch(() => {})
  t.after(() => box.pty.kill(handle.pid).catch(() => {}))
  return {
    handle,
    shown,
    type: (text) => box.pty.sendInput(handle.pid, new TextEncoder().encode(text)),
    shows: (text) => until(() => shown.text.includes(text), () => shown.text),
  }
}

test('a terminal echoes', async (t) => {
  const { type, shows, shown } = await terminal(t)
  await type('echo mark$((40+2))\n')
  await shows('mark42')
  assert(shown.text.includes('echo mark$((40+2))'), shown.text)
})

test('a terminal has a size that changes', async (t) => {
  const { handle, type, shows } = await terminal(t)
  await type('stty size\n')
  await shows('30 100')
  await box.pty.resize(handle.pid, { cols: 77, rows: 11 })
  await type('stty size\n')
  await shows('11 77')
})

test('a terminal is one, with its usual variables', async (t) => {
  const { type, shows } = await terminal(t)
  await type('test -t 0 -a -t 1 && echo "is $TERM $LANG"; tty\n')
  await shows('is xterm-256color C.UTF-8')
  await shows('/dev/pts/')
})

test('a terminal starts where, as whom and with what it is told', async (t) => {
  const { type, shows } = await terminal(t, { user: 'root', cwd: '/etc', envs: { MARK: 'here' } })
  await type('echo "$(whoami)-$PWD-$MARK"\n')
  await shows('root-/etc-here')
})

test('a terminal passes interrupts', async (t) => {
  const { type, shows } = await terminal(t)
  await type('echo a$((1+1)); sleep 4424\n')
  await shows('a2')
  await until(async () => (await box.commands.run("pgrep -fc '[s]leep 4424' || true")).stdout.trim() === '1')
  await type('\x03')
  await type('echo back$((1+1))\n')
  await shows('back2')
})

test('a terminal ends with a status', async (t) => {
  const { handle, type } = await terminal(t)
  await type('exit 3\n')
  await assert.rejects(handle.wait(), (error) => error instanceof CommandExitError && error.exitCode === 3)
})

test('a terminal is connected to again', async (t) => {
  const { handle, type, shown } = await terminal(t)
  await handle.disconnect()
  let seen = ''
  const again = await box.pty.connect(handle.pid, { timeoutMs: 600_000, onData: (data) => { seen += Buffer.from(data).toString() } })
  again.wait().catch(() => {})
  await type('echo again$((3+4))\n')
  await until(() => seen.includes('again7'), () => seen)
  assert(!shown.text.includes('again7'))
  await again.disconnect()
})

test('a terminal is listed and killed', async (t) => {
  const { handle } = await terminal(t)
  assert((await box.commands.list()).some((process) => process.pid === handle.pid && process.args.includes('-i')))
  assert.equal(await box.pty.kill(handle.pid), true)
  await assert.rejects(handle.wait(), CommandExitError)
  assert.equal(await box.pty.kill(handle.pid), false)
  await assert.rejects(box.pty.sendInput(handle.pid, Buffer.from('x')), NotFoundError)
  await assert.rejects(box.pty.resize(handle.pid, { cols: 1, rows: 1 }), NotFoundError)
  await assert.rejects(box.pty.connect(handle.pid), NotFoundError)
})

test('the time of a terminal ends', async (t) => {
  await assert.rejects(async () => (await terminal(t, { timeoutMs: 1000 })).handle.wait(), TimeoutError)
})

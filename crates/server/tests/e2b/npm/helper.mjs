// What the cases share: the clients as they come from npm (E2B_NODE names the
// directory with `node_modules`), sandboxes that end with their case or their
// file, and patience.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { after } from 'node:test'

const require = createRequire(pathToFileURL(process.env.E2B_NODE + '/'))

export const e2b = require('e2b')
export const interpreter = require('@e2b/code-interpreter')

const { Sandbox } = e2b

/** One sandbox for all cases of a file. */
export async function shared(kind = Sandbox) {
  const sandbox = await kind.create({ timeoutMs: 1_800_000 })
  after(() => sandbox.kill())
  return sandbox
}

/** A sandbox of one case, which may end it. */
export async function fresh(t, options = {}, template = 'base') {
  const sandbox = await Sandbox.create(template, { timeoutMs: 600_000, ...options })
  t.after(() => sandbox.kill())
  return sandbox
}

/** A directory of one case in a sandbox that others use, too. */
export async function place(t, sandbox) {
  const path = `/home/user/${t.name.replaceAll(/[^a-z0-9]+/gi, '-')}`
  await sandbox.files.makeDir(path)
  return path
}

export function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms))
}

/** Waits until something holds, and gives it. */
export async function until(check, what = 'it never came', seconds = 60) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const found = await check()
    if (found) return found
    assert(Date.now() < end, typeof what === 'function' ? what() : what)
    await sleep(50)
  }
}

/** Until no process of the sandbox has this in its command line. */
export async function untilGone(sandbox, text) {
  const pattern = `[${text[0]}]${text.slice(1)}`
  const count = async () => (await sandbox.commands.run(`pgrep -fc '${pattern}' || true`, { user: 'root' })).stdout.trim()
  await until(async () => (await count()) === '0', `${text} is still there`)
}

/** All pages of a list, one after the other. */
export async function pages(list) {
  const found = []
  while (list.hasNext) found.push(await list.nextItems())
  return found
}

export async function ids(options) {
  return (await pages(Sandbox.list(options))).flat().map((info) => info.sandboxId)
}

/** What proves that a request may go into a sandbox, as the guide has it. */
export function headersOf(sandbox, port) {
  return {
    'E2b-Sandbox-Id': sandbox.sandboxId,
    'E2b-Sandbox-Port': String(port),
    'X-Access-Token': sandbox.trafficAccessToken,
  }
}

/** The bytes of a stream. */
export async function bytesOf(stream) {
  const pieces = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces)
}

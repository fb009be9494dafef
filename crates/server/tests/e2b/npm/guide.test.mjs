// 1 case: the program of the guide, as it stands there.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { ids } from './helper.mjs'

const guide = new URL('../../../../../docs/guide/e2b.md', import.meta.url)

test('the program of the guide runs and leaves nothing', async (t) => {
  const [, program, ...more] = (await readFile(guide, 'utf8')).match(/^```js\n(.*?)^```$/ms)
  assert.equal(more.length, 0)
  const directory = await mkdtemp(join(tmpdir(), 'fractal-guide-'))
  t.after(() => rm(directory, { recursive: true }))
  await writeFile(join(directory, 'agent.mjs'), program)
  await symlink(join(process.env.E2B_NODE, 'node_modules'), join(directory, 'node_modules'))
  const before = await ids()
  const { stdout } = await promisify(execFile)(process.execPath, ['agent.mjs'], { cwd: directory, timeout: 120_000 })
  assert.equal(stdout, 'hello\n')
  assert.deepEqual(await ids(), before)
})

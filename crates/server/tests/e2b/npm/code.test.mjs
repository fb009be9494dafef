// 20 cases: the code interpreter with its contexts, results and errors.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, interpreter, shared } from './helper.mjs'

const { InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } = e2b

const lab = await shared(interpreter.Sandbox)
// The client keeps the clock of a request that is refused running.
const refused = { requestTimeoutMs: 0 }

test('the last value is the result', async () => {
  const done = await lab.runCode('a = 20\na * 2 + 2')
  assert.deepEqual([done.text, done.results.length, done.error], ['42', 1, undefined])
  assert.deepEqual([done.results[0].isMainResult, done.results[0].formats()], [true, []])
})

test('names stay', async () => {
  await lab.runCode('import math\nradius = 2\ndef area(r): return math.pi * r * r')
  assert.equal((await lab.runCode('round(area(radius), 3)')).text, '12.566')
})

test('pieces are counted', async () => {
  const [first, second] = [await lab.runCode('1'), await lab.runCode('1')]
  assert.equal(second.executionCount, first.executionCount + 1)
})

test('no value is no result', async () => {
  for (const code of ['x = 1', 'None', '1;', '', '# only a comment', 'if True:\n  2']) {
    const done = await lab.runCode(code)
    assert.deepEqual([done.results, done.error, done.text], [[], undefined, undefined], code)
  }
})

test('output comes as it is written', async () => {
  const seen = []
  const done = await lab.runCode("import sys, time\nprint('one'); time.sleep(0.5); print('two', file=sys.stderr)", {
    onStdout: (out) => { seen.push(['out', out.line, out.error]) },
    onStderr: (out) => { seen.push(['err', out.line, out.error]) },
  })
  assert.deepEqual([done.logs.stdout.join(''), done.logs.stderr.join('')], ['one\n', 'two\n'])
  assert.deepEqual([seen[0].toSpliced(1, 1), seen.at(-1).toSpliced(1, 1)], [['out', false], ['err', true]])
})

test('results and errors are called for, too', async () => {
  const seen = []
  await lab.runCode("display('shown')\n1 / 0", {
    onResult: (result) => { seen.push(result.text) },
    onError: (error) => { seen.push(error.name) },
  })
  assert.deepEqual(seen, ["'shown'", 'ZeroDivisionError'])
})

test('programs are heard too', async () => {
  const done = await lab.runCode("import os\nos.system('echo from a program')\n!echo from a line")
  assert.equal(done.logs.stdout.join(''), 'from a program\nfrom a line\n')
})

test('an exception is told and leaves the names', async () => {
  await lab.runCode('kept = 5')
  const { error } = await lab.runCode('def f():\n    return 1 / 0\nf()')
  assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(error.traceback, /return 1 \/ 0/)
  assert.equal((await lab.runCode('kept')).text, '5')
})

test('errors have their names', async () => {
  const all = { '1 +': 'SyntaxError', no_such: 'NameError', 'exit(3)': 'SystemExit', 'raise KeyboardInterrupt': 'KeyboardInterrupt' }
  for (const [code, name] of Object.entries(all)) {
    assert.equal((await lab.runCode(code)).error.name, name)
    assert.equal((await lab.runCode('1 + 1')).text, '2')
  }
})

test('values have forms', async () => {
  const done = await lab.runCode(`
class A:
  def __repr__(self): return 'an A'
  def _repr_html_(self): return '<b>x</b>'
  def _repr_markdown_(self): return '**x**'
  def _repr_svg_(self): return '<svg/>'
  def _repr_latex_(self): return '$x$'
  def _repr_json_(self): return {'x': [1, 2]}
  def _repr_png_(self): return b'png'
display(A())
A()`)
  const [shown, main] = done.results
  assert.deepEqual([shown.isMainResult, main.isMainResult, done.text], [false, true, 'an A'])
  assert.deepEqual([main.html, main.markdown, main.svg, main.latex], ['<b>x</b>', '**x**', '<svg/>', '$x$'])
  assert.deepEqual([main.json, main.png], [{ x: [1, 2] }, 'cG5n'])
  assert.deepEqual(new Set(main.formats()), new Set(['html', 'markdown', 'svg', 'latex', 'json', 'png']))
})

test('much output of all letters is whole', async () => {
  const done = await lab.runCode("for n in range(20000): print(n, 'ä€😀')", { timeoutMs: 300_000 })
  assert.equal(done.logs.stdout.join(''), Array.from({ length: 20_000 }, (_, at) => `${at} ä€😀\n`).join(''))
})

test('a long result is whole', async () => {
  const done = await lab.runCode("'€' * 300_000")
  assert.equal(done.text, `'${'€'.repeat(300_000)}'`)
})

test('waiting works at the top', async () => {
  assert.equal((await lab.runCode('import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, 7)')).text, '7')
})

test('variables are for one piece', async () => {
  const read = "import os\nos.environ.get('MARK')"
  assert.equal((await lab.runCode(read, { envs: { MARK: 'here' } })).text, "'here'")
  assert.equal((await lab.runCode(read)).text, undefined)
})

test('contexts share nothing', async () => {
  const one = await lab.createCodeContext({ cwd: '/tmp' })
  const two = await lab.createCodeContext({ language: 'python' })
  assert.deepEqual([one.cwd, one.language, two.language], ['/tmp', 'python', 'python'])
  await lab.runCode('x = 1', { context: one })
  assert.equal((await lab.runCode('x', { context: two })).error.name, 'NameError')
  assert.equal((await lab.runCode('import os; os.getcwd()', { context: one })).text, "'/tmp'")
  await lab.removeCodeContext(one)
  await lab.removeCodeContext(two.id)
})

test('contexts are listed, restarted and removed', async () => {
  const context = await lab.createCodeContext()
  const listed = async () => (await lab.listCodeContexts()).some((one) => one.id === context.id)
  assert.equal(await listed(), true)
  await lab.runCode('x = 1', { context })
  await lab.restartCodeContext(context)
  assert.equal((await lab.runCode('x', { context })).error.name, 'NameError')
  await lab.removeCodeContext(context)
  assert.equal(await listed(), false)
  await assert.rejects(lab.runCode('1', { context, ...refused }), NotFoundError)
  await assert.rejects(lab.removeCodeContext(context), NotFoundError)
  await assert.rejects(lab.restartCodeContext(context), NotFoundError)
})

test('contexts work side by side', async () => {
  const contexts = await Promise.all([1, 2, 3].map(() => lab.createCodeContext()))
  const done = await Promise.all(contexts.map((context, at) => lab.runCode(`import time; time.sleep(0.3); ${at}`, { context })))
  assert.deepEqual(done.map((one) => one.text), ['0', '1', '2'])
  await Promise.all(contexts.map((context) => lab.removeCodeContext(context)))
})

test('code that nobody waits for is interrupted', async () => {
  await assert.rejects(lab.runCode("import time\nstill = 'here'\ntime.sleep(600)", { timeoutMs: 2000 }), TimeoutError)
  assert.equal((await lab.runCode('still', { requestTimeoutMs: 120_000, timeoutMs: 120_000 })).text, "'here'")
})

test('a process that dies is told, and another begins', async () => {
  assert.equal((await lab.runCode('import os\nos._exit(1)')).error.name, 'ContextLost')
  assert.equal((await lab.runCode('1 + 1')).text, '2')
})

test('languages that are not there are refused, and files are shared', async () => {
  await assert.rejects(lab.runCode('1', { language: 'r', ...refused }), SandboxError)
  await assert.rejects(lab.createCodeContext({ language: 'java' }), SandboxError)
  const context = { id: 'x', language: 'python', cwd: '/' }
  await assert.rejects(lab.runCode('1', { language: 'python', context }), InvalidArgumentError)
  await lab.files.write('data.csv', 'a,b\n1,2\n')
  assert.equal((await lab.runCode("open('data.csv').read().count(',')", { language: 'python' })).text, '2')
})

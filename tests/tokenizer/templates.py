"""Chat templates in the forms that models use; written for the tests."""

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'Functions:' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set last = namespace(query=-1) %}
{%- for message in messages[::-1] %}
    {%- if last.query < 0 and message.role == 'user' %}
        {%- set last.query = messages | length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content is defined and loop.index0 > last.query %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content.split('</think>')[-1] }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

# Llama 3's form, with <|im_start|> for its header tokens: content trimmed, a token by variable, macros and a date.
TRIMMING = """\
{% macro header(role) %}<|im_start|>{{ role }}

{% endmacro %}
{%- if not date is defined %}{% set date = strftime_now('%Y') | length %}{% endif %}
{%- for message in messages %}
{%- if message['role'] not in ['system', 'user', 'assistant'] %}{{ raise_exception('Unknown role!') }}{% endif %}
{%- if loop.first %}{{ pad_token }}{{ date }}{% endif %}
{%- if not message.content %}{% continue %}{% endif %}
{{- header(message.role) }}{% generation %}{{ message['content'] | trim }}{% endgeneration %}{{ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ header('assistant') }}{% endif %}
"""

PARTS = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{ message.content }}
    {%- else %}{%- for part in message.content %}{{ part.text }}{%- endfor %}{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
"""

PARTS_ALONE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{{ part['type'] + ':' + part['text'] }}{% endfor %}{% endfor %}"
)

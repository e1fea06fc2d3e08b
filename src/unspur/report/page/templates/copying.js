// Buttons that copy the command and the snippet.
const copied = document.getElementById('copied');

function select(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

document.querySelectorAll('.copy').forEach((button) => {
  button.addEventListener('click', async () => {
    const source = document.getElementById(button.dataset.copies);
    let said = 'Copied.';
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = 'Copied';
    } catch {
      select(source);
      said = 'The text is selected; copy it with your keyboard.';
      button.textContent = 'Selected';
    }
    copied.textContent = said;
    setTimeout(() => { button.textContent = 'Copy'; copied.textContent = ''; }, 2500);
  });
});
